-- Ends a flight. Promises: one outcome per flight, only from the owner of a
-- standing lease; asked again it says the same; a refused one leaves nothing.
local meta, waiters, result, stream, staged = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, flight, status, form = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local body, reusable, keep, report = ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]
local channel, push_max = ARGV[9], tonumber(ARGV[10])

local record = read(meta)
if not owned(record, token, flight) then
  redis.call('DEL', staged)
  if ended_by(record, token, flight) then
    return { 'OK' }
  end
  return lost(record, token, flight)
end

if (status == 'done' and form == 'kept') or status == 'abandoned' then
  local waiting = live(waiters)
  if waiting > 0 then
    return { 'WANTED' }
  end
  status = 'abandoned'
end

redis.call('PEXPIRE', meta, int(keep))
local failures = record.failures
if status == 'failed' or status == 'timedout' then
  failures = failures + 1
end
redis.call('HSET', meta, 'status', status, 'leaseEnd', '0', 'endedAt', int(now),
  'markEnd', int(now + keep * 1000), 'reusable', reusable, 'failures', int(failures),
  'report', report)
redis.call('DEL', waiters)

local pushed, kind = nil, 'E'
if status == 'done' then
  if form == 'inline' then
    redis.call('SET', result, body, 'PX', int(keep))
    pushed = body
  elseif redis.call('EXISTS', staged) == 1 then
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
  kind = 'B'
elseif status == 'abandoned' then
  kind = 'R'
end

local held = redis.call('TYPE', stream).ok
if held ~= 'stream' and held ~= 'none' then
  redis.call('DEL', stream)
end
-- A stream left over from lost data may be ahead of this token: no reason to fail.
redis.pcall('XADD', stream, int(token) .. '-' .. int((tonumber(record.next) or 0) + 1),
  'end', status, 'flight', flight)
last(stream, keep)
push(channel, kind, record, status, pushed)
return { 'OK' }
