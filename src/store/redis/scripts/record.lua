-- What every step shares. TIME is read once. A record that is damaged, foreign
-- or of another format reads as none, and is never a script error.
local FORMAT = '1'
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now / 1000)

-- A plain `..` would write 1795968540019938 as 1.7959685400199e+15.
local function int(n)
  return string.format('%.0f', n)
end

local function is(key, kind)
  return redis.call('TYPE', key).ok == kind
end

local ENDS = {
  done = true, failed = true, timedout = true, private = true, toolarge = true,
  abandoned = true, forgotten = true, stopped = true,
}
-- How a flight ends by somebody else's word; what its owner is told of it.
local TOLD = { forgotten = 'FORGOTTEN', stopped = 'STOPPED' }
-- Beyond some 16 digits a Lua number is not exact. No honest one comes near.
local LIMIT = 9000000000000000

local NUMBERS = {
  'ownerToken', 'leaseEnd', 'prevToken', 'failures', 'losses', 'joins', 'endedAt', 'markEnd',
  'next', 'trimmed',
}

-- The number that a text is; none where the scripts would not have written it so.
local function number(text)
  if text and #text <= 16 and (text == '0' or string.find(text, '^[1-9]%d*$'))
    and tonumber(text) < LIMIT then
    return tonumber(text)
  end
end

local function is_flight(text)
  return text and #text == 32 and not string.find(text, '[^0-9a-f]')
end

-- Marks outlive what they mark: none lasts longer than its key, by more than a second.
local function horizon(key)
  local left = redis.call('PTTL', key)
  return left >= 0 and now_ms + left + 1000 or nil
end

-- The record; none, and true, where it is another release's, which lives by rules that
-- this one does not know.
local function read(key)
  if not is(key, 'hash') or redis.call('HLEN', key) > 64 then
    return nil
  end
  local last_ms = horizon(key)
  local flat, record = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    record[flat[i]] = flat[i + 1]
  end
  if not last_ms then
    return nil
  elseif record.format ~= FORMAT then
    return nil, string.find(record.format or '', '^%d%d?%d?$') ~= nil
  end
  local status = record.status or ''
  if not (ENDS[status] or status == 'running' or status == 'lost') or not is_flight(record.flight)
    or not (record.prevFlight == '' and record.prevStatus == ''
      or is_flight(record.prevFlight) and ENDS[record.prevStatus or '']) then
    return nil
  end
  -- A record that was written before there were streams says nothing of them.
  record.next, record.trimmed = record.next or '0', record.trimmed or '0'
  for _, name in ipairs(NUMBERS) do
    record[name] = number(record[name])
    if not record[name] then
      return nil
    end
  end
  if math.max(record.leaseEnd, record.markEnd) > last_ms * 1000
    or record.trimmed > record.next then
    return nil
  end
  return record
end

local function owned(record, token, flight)
  return record and record.ownerToken == token and record.flight == flight
    and record.status == 'running' and now < record.leaseEnd
end

local function ended_by(record, token, flight)
  if not record then
    return false
  end
  local status = record.status
  return (record.ownerToken == token and record.flight == flight
      and status ~= 'running' and status ~= 'lost' and not TOLD[status])
    or (record.prevToken == token and record.prevFlight == flight
      and not TOLD[record.prevStatus])
end

-- Why a flight is not its owner's, where it did not end by its own word.
local function lost(record, token, flight)
  if not record then
    return { 'MISSING' }
  end
  local told
  if record.ownerToken == token and record.flight == flight then
    told = TOLD[record.status]
  elseif record.prevToken == token and record.prevFlight == flight then
    told = TOLD[record.prevStatus]
  end
  return told and { told } or { 'SUPERSEDED', int(record.ownerToken) }
end

-- Drops the marks that have run out, and those that nobody can have set.
local function purge(waiters)
  local last_ms = horizon(waiters)
  redis.call('ZREMRANGEBYSCORE', waiters, '-inf', int(now_ms))
  redis.call('ZREMRANGEBYSCORE', waiters, '(' .. int(last_ms or now_ms), '+inf')
end

-- How many wait; the dead are dropped on the way.
local function live(waiters)
  if not is(waiters, 'zset') then
    return 0
  end
  purge(waiters)
  return redis.call('ZCARD', waiters)
end

-- Makes a key last at least this long.
local function last(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, int(ms))
  end
end

-- How many pieces the running flight's stream has had. What is no stream makes way
-- for one, and where it is gone the pieces are gone with it.
local function pieces(record, key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'stream' then
    return record.next
  elseif kind ~= 'none' then
    redis.call('DEL', key)
  end
  return 0
end

-- Whether a stream refused an entry since it has a later one.
local function is_ahead(refusal)
  return string.find(refusal, '^ERR The ') ~= nil
end

local function index(n)
  return string.format('%020.0f', n)
end

local LETTERS = {
  running = 'r', done = 'd', failed = 'f', timedout = 't', private = 'p', toolarge = 'l',
  abandoned = 'a', forgotten = 'a', stopped = 's',
}

-- A push is a hint: where the user may not publish, the step stands all the same.
-- A cluster has a command of its own for it.
local function push(publish, channel, kind, record, status, body)
  redis.pcall(publish, channel, FORMAT .. kind .. LETTERS[status] .. record.flight
    .. index(record.ownerToken) .. (body or ''))
end
