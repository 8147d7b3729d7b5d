-- The rest of it: all that is not as it mostly is.
local waiter, known = ARGV[2], tonumber(ARGV[3])
local lease, reuse, retention = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
-- The last ones are left out where they say nothing: that it looks, and then for how long
-- its mark lasts, 0 for as long as the lease does; what a cluster counts by.
local badge, channels, look = ARGV[7], ARGV[8], ARGV[9]
local prefetched, publish = tonumber(ARGV[10] or 0), ARGV[11]
look = look and look ~= ''
local mark = look and tonumber(ARGV[9]) or 0
local QUARANTINE, LOSSES, FAILURES, REPORT = 5000, 3, 2, 512

local record, is_other = read(meta)
if is_other then
  -- Two releases share the server for a while: each leaves the other's flights alone.
  return { 'OTHER' }
end

-- The answer of a flight that ended well, and how old it is for who did not wait for it;
-- nothing where it is gone.
local function done(token, id, sealed, age)
  local body = false
  if sealed == '1' then
    local ends = is(stream, 'stream')
      and redis.call('XREVRANGE', stream, int(token), int(token), 'COUNT', 1)[1]
    if not ends or ends[2][1] ~= 'end' or ends[2][4] ~= id then
      return nil
    end
  else
    -- One byte more than it would give: then it is too large for a script.
    body = redis.pcall('GETRANGE', result, 0, INLINE)
    if type(body) ~= 'string' or body == '' and redis.call('EXISTS', result) == 0 then
      return nil
    elseif #body > INLINE then
      body = false
    end
  end
  return { 'DONE', token, id, sealed == '1' and 1 or 0, body, age and 1 or 0,
    math.floor((age or 0) / 1000) }
end

-- Whose marks live on, and how many of them joined before this one. The fraction
-- of a score is the place in line; the rest is when the mark runs out.
local function follow()
  if not is(waiters, 'zset') then
    redis.call('DEL', waiters)
  end
  purge(waiters)
  local unwatched = redis.call('ZCARD', waiters) == 0
  local left = math.ceil((record.leaseEnd - now) / 1000)
  local ms = mark > 0 and mark or left + lease
  local old, place = redis.call('ZSCORE', waiters, waiter), nil
  if old then
    place = tonumber(old) % 1
    if record.joins == 0 then
      -- Left over from another flight, and somebody's of this one from now on.
      redis.call('HSET', meta, 'joins', 1)
    end
  else
    place = (redis.call('HINCRBY', meta, 'joins', 1) % 1024) / 1024
  end
  local others = redis.call('ZRANGE', waiters, 0, 255, 'WITHSCORES')
  local rank = 0
  for i = 1, #others, 2 do
    if others[i] ~= waiter and tonumber(others[i + 1]) % 1 < place then
      rank = rank + 1
    end
  end
  redis.call('ZADD', waiters, string.format('%.10f', math.floor(now / 1000) + ms + place), waiter)
  last(waiters, ms + lease)
  if unwatched then
    push(publish, channels, meta, 'W', record, 'running')
  end
  return { 'FOLLOW', record.ownerToken, record.flight, left, rank, pieces(record, stream),
    record.badge or '' }
end

local function grant(losses)
  local token = math.max(known + 1, prefetched, now)
  local more = {}
  local function also(name, value)
    more[#more + 1] = name
    more[#more + 1] = value
  end
  local prev_token, joins = 0, 0
  if record then
    token = math.max(token, record.ownerToken + 1, record.prevToken + 1)
    local prev_flight, prev_status, prev_sealed
    if record.status == 'running' or record.status == 'lost' then
      prev_token, prev_flight, prev_status = record.prevToken, record.prevFlight, record.prevStatus
      prev_sealed = record.prevSealed
    else
      prev_token, prev_flight, prev_status = record.ownerToken, record.flight, record.status
      prev_sealed = record.sealed
    end
    if prev_flight ~= '' then
      also('prevToken', prev_token)
      also('prevFlight', prev_flight)
      also('prevStatus', prev_status)
      if prev_sealed == '1' then
        also('prevSealed', '1')
      end
    end
    if known > 0 and record.status ~= 'done' and record.failures > 0 then
      also('failures', record.failures)
    end
    joins = record.joins
  end
  if losses > 0 then
    also('losses', losses)
  end
  if token >= LIMIT then
    token = now
  end
  -- Refused where memory is full, with nothing written yet.
  if seq then
    if not last_token then
      last_token = redis.pcall('SET', seq, token, 'GET')
    end
    if type(last_token) == 'table' then
      -- No text lay there; or it is refused, and so is this.
      redis.call('SET', seq, token)
    else
      last_token = last_token and number(last_token)
      if last_token and last_token >= token then
        token = last_token + 1
        if token >= LIMIT then
          token = now
        end
        redis.call('SET', seq, token)
      end
    end
  elseif type(size) == 'number' then
    redis.call('HSET', meta, 'format', FORMAT)
  end
  if size ~= 0 then
    redis.call('DEL', meta)
  end
  -- Marks that may be there, and a stream; and who knows of a flight may still listen.
  local others = redis.call('EXISTS', waiters, stream)
  if others > 0 or known > 0 then
    also('joins', math.max(joins, 1))
  end
  if token ~= now then
    also('since', at)
  end
  redis.call('HSET', meta, 'format', FORMAT, 'ownerToken', token, 'flight', flight,
    'status', 'running', 'heartbeatAt', at, 'lease', lease, 'badge', badge, unpack(more))
  redis.call('PEXPIRE', meta, 2 * lease)
  if others == 0 then
    return { 'OWN', token }
  end
  if is(waiters, 'zset') then
    purge(waiters)
    redis.call('ZREM', waiters, waiter)
    last(waiters, 2 * lease)
  else
    redis.call('DEL', waiters)
  end
  if is(stream, 'stream') then
    if #redis.call('XRANGE', stream, int(token), '+', 'COUNT', 1) > 0 then
      -- Left over from lost data: it must not pass for this flight's.
      redis.call('DEL', stream)
    else
      redis.call('XTRIM', stream, 'MINID', int(prev_token > 0 and prev_token or token))
    end
  end
  return { 'OWN', token }
end

if record and record.status == 'lost' and now < record.markEnd then
  return { 'QUARANTINED', math.ceil((record.markEnd - now) / 1000) }
end

local losses = 0
if record and record.ownerToken >= known then
  local status, mine = record.status, record.flight == flight
  if owned(record, record.ownerToken, flight) then
    redis.call('PEXPIRE', meta, 2 * lease)
    redis.call('HSET', meta, 'heartbeatAt', at, 'lease', lease)
    return { 'OWN', record.ownerToken }
  end
  -- Whoever took part in a stopped flight, or comes after one that did.
  if known > 0 and not mine and record.prevFlight ~= flight then
    if status == 'stopped' then
      return { 'FAILED', record.ownerToken, record.flight, status, '' }
    elseif record.prevStatus == 'stopped' and record.prevToken >= known then
      return { 'FAILED', record.prevToken, record.prevFlight, 'stopped', '' }
    end
  end
  if status == 'running' then
    local missed = known > 0 and record.prevStatus == 'done' and record.prevToken >= known
      and done(record.prevToken, record.prevFlight, record.prevSealed)
    if missed then
      return missed
    end
    if now < record.leaseEnd then
      if known == 0 and record.trimmed > 0 then
        -- Its start is gone: who has none of it yet runs alone.
        return { 'PRIVATE', 0 }
      end
      return follow()
    end
  elseif status == 'done' then
    -- A step back of the clock is no age.
    local age = math.max(now - record.endedAt, 0)
    local fresh = known == 0 and not mine
    local most = math.min(reuse, number(record.fresh) or 0)
    local reused = record.trimmed == 0 and age < most * 1000
    local found = (not fresh or reused)
      and done(record.ownerToken, record.flight, record.sealed, fresh and age)
    if found then
      return found
    end
  elseif status == 'private' and now < record.markEnd then
    local left = math.ceil((record.markEnd - now) / 1000)
    -- One at a time finds out whether that is still so; none where memory is full.
    local asks = known == 0 and not mine and not look
      and (not record.probe or record.probe == flight)
    if asks and type(redis.pcall('HSET', meta, 'probe', flight)) == 'number' then
      return { 'PROBE', left }
    end
    return { 'PRIVATE', left }
  elseif status == 'toolarge' and known > 0 and not mine then
    -- Whoever waited for it runs alone, like the others who did.
    return { 'PRIVATE', 0 }
  elseif (status == 'failed' or status == 'timedout') and known > 0 and not mine
    and record.failures >= FAILURES then
    return { 'FAILED', record.ownerToken, record.flight, status,
      string.sub(record.report or '', 1, REPORT) }
  end
  if mine and status ~= 'running' and status ~= 'lost' then
    return { 'ENDED', status }
  elseif record.prevFlight == flight then
    return { 'ENDED', record.prevStatus }
  end
end
if look then
  return { record and record.ownerToken >= known and 'LAPSED' or 'MISSING' }
end
if record then
  if known > 0 and record.status ~= 'done' then
    losses = record.losses
  end
  if record.status == 'running' and now >= record.leaseEnd and record.flight ~= flight
    and record.leaseEnd > 0 then
    losses = losses + 1
    if losses >= LOSSES then
      redis.call('PEXPIRE', meta, math.max(QUARANTINE, retention))
      redis.call('HSET', meta, 'status', 'lost', 'losses', '0', 'endedAt', at, 'markEnd', now + QUARANTINE * 1000)
      return { 'QUARANTINED', QUARANTINE }
    end
  end
end
return grant(losses)
