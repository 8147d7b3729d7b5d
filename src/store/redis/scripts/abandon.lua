-- Ends a flight that nobody in the owner's process waits for. Promises: a run that
-- a live waiter wants goes on. Works where memory is full.
local meta, waiters = KEYS[1], KEYS[2]
local token, flight, channel, publish = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local record = read(meta)
if not owned(record, token, flight) then
  return lost(record, token, flight)
end
local waiting = live(waiters)
if waiting > 0 then
  return { 'WANTED', waiting }
end
redis.call('HDEL', meta, 'heartbeatAt')
redis.call('HSET', meta, 'status', 'abandoned', 'leaseEnd', '0', 'endedAt', int(now))
push(publish, channel, 'R', record, 'abandoned')
return { 'OK' }
