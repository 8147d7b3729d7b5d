-- Lets a flight go, whether or not its lease still stands. Promises: touches no
-- other flight and nothing that has ended. Works where memory is full.
local meta, flight, token, channel = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local record = read(meta)
if not record or record.status ~= 'running' or record.flight ~= flight
  or (token ~= 0 and record.ownerToken ~= token) then
  return { 'NOTHING' }
end
redis.call('HDEL', meta, 'heartbeatAt')
redis.call('HSET', meta, 'status', 'abandoned', 'leaseEnd', '0', 'endedAt', int(now))
push(channel, 'R', record, 'abandoned')
return { 'OK' }
