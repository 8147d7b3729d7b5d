-- Ends a wait. Promises: removes this mark and no other. Works where memory is full.
if redis.call('TYPE', KEYS[1]).ok == 'zset' then
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return { 'OK' }
