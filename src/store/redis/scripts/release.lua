-- Lets a flight go, whether or not its lease still stands: one that passed its time
-- limit counts as a failed run, any other as none. Promises: touches no other flight
-- and nothing that has ended. Works where memory is full.
local meta, flight, token, status, channel = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local record = read(meta)
if not record or record.status ~= 'running' or record.flight ~= flight
  or (token ~= 0 and record.ownerToken ~= token) then
  return { 'NOTHING' }
end
local failures, kind = record.failures, 'R'
if status == 'timedout' then
  failures, kind = failures + 1, 'E'
end
redis.call('HDEL', meta, 'heartbeatAt')
redis.call('HSET', meta, 'status', status, 'leaseEnd', '0', 'endedAt', int(now),
  'failures', int(failures))
push(channel, kind, record, status)
return { 'OK' }
