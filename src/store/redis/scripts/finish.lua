-- Ends a flight. Promises: one outcome per flight, only from the owner of a
-- standing lease; asked again it says the same; a refused one leaves nothing; a sealed
-- stream is whole.
local meta, waiters, result, stream, staged = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, flight, status, form = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local body, fresh, keep, report = ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]
local channel, publish, push_max = ARGV[9], ARGV[10], tonumber(ARGV[11])
local sealed, count, proof = form == 'sealed', tonumber(ARGV[12]), ARGV[13]

local record = read(meta)
if not owned(record, token, flight) then
  redis.call('DEL', staged)
  if ended_by(record, token, flight) then
    return { 'OK' }
  end
  return lost(record, token, flight)
end

local there = pieces(record, stream)
if sealed and count ~= there then
  return { 'GAP', int(there) }
end
if (status == 'done' and form == 'kept') or status == 'abandoned' then
  local waiting = live(waiters)
  if waiting > 0 then
    return { 'WANTED' }
  end
  status, sealed = 'abandoned', false
end

-- The first write is one that is allowed where memory is full.
redis.call('HDEL', meta, 'heartbeatAt')
local function write_end()
  local id = int(token) .. '-' .. int(there + 1)
  if sealed then
    return redis.pcall('XADD', stream, id, 'end', status, 'flight', flight,
      'pieces', int(count), 'proof', proof)
  end
  return redis.pcall('XADD', stream, id, 'end', status, 'flight', flight)
end
local written = write_end()
if type(written) == 'table' and is_ahead(written.err) then
  -- Left over from lost data: nobody can tell what it is, or add to it.
  redis.call('DEL', stream)
  if sealed and there > 0 then
    redis.call('HSET', meta, 'next', '0', 'trimmed', '0')
    return { 'GAP', '0' }
  end
  write_end()
end
last(stream, keep)

redis.call('PEXPIRE', meta, int(keep))
local failures = record.failures
if status == 'failed' or status == 'timedout' then
  failures = failures + 1
end
redis.call('HSET', meta, 'status', status, 'leaseEnd', '0', 'endedAt', int(now),
  'markEnd', int(now + keep * 1000), 'fresh', fresh, 'failures', int(failures),
  'report', report, 'sealed', sealed and '1' or '0')
redis.call('DEL', waiters)

local pushed, kind = nil, 'E'
if sealed then
  pushed = index(count) .. proof
elseif status == 'done' then
  if form == 'inline' then
    redis.call('SET', result, body, 'PX', int(keep))
    pushed = body
  elseif is(staged, 'string') then
    redis.call('RENAME', staged, result)
    redis.call('PEXPIRE', result, int(keep))
    if redis.call('STRLEN', result) <= push_max then
      pushed = redis.call('GET', result)
    end
  else
    -- Memory was too full for the record: whoever wants it finds it missing.
    redis.call('DEL', result)
  end
else
  redis.call('DEL', staged)
end
if pushed then
  kind = sealed and 'S' or 'B'
elseif status == 'abandoned' then
  kind = 'R'
end
push(publish, channel, kind, record, status, pushed)
return { 'OK' }
