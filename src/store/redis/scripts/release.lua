-- Lets a flight go, whether or not its lease still stands: one that passed its time
-- limit counts as a failed run, any other as none. Or ends a probe. Promises: touches no other flight
-- and nothing that has ended. Works where memory is full.
local meta, flight, token, status = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local channels, publish = ARGV[4], ARGV[5]
local record = read(meta)
if record and record.status == 'private' and record.probe == flight then
  -- What it found may be shared: the mark is gone. Else another one may find out.
  redis.call('HDEL', meta, 'probe')
  if status == 'done' then
    redis.call('HSET', meta, 'status', 'abandoned', 'markEnd', '0')
  end
  return { 'OK' }
end
if status == 'done' or not record or record.status ~= 'running' or record.flight ~= flight
  or (token ~= 0 and record.ownerToken ~= token) then
  return { 'NOTHING' }
end
local failures, kind = record.failures, 'R'
if status == 'timedout' then
  failures, kind = failures + 1, 'E'
end
redis.call('HDEL', meta, 'probe')
redis.call('HSET', meta, 'status', status, 'endedAt', at, 'failures', failures)
push(publish, channels, meta, kind, record, status)
return { 'OK' }
