-- Ends a flight that nobody in the owner's process waits for. Promises: a run that
-- a live waiter wants goes on. Works where memory is full.
local meta, waiters = KEYS[1], KEYS[2]
local token, flight, channels, publish = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local record = read(meta)
if not owned(record, token, flight) then
  return lost(record, token, flight)
end
local waiting = live(waiters)
if waiting > 0 then
  return { 'WANTED', waiting }
end
-- The first write is one that is allowed where memory is full.
redis.call('HDEL', meta, 'probe')
redis.call('HSET', meta, 'status', 'abandoned', 'endedAt', at)
if record.joins > 0 then
  push(publish, channels, meta, 'R', record, 'abandoned')
end
return { 'OK' }
