-- Ends a flight. Promises: one outcome per flight, only from the owner of a
-- standing lease; asked again it says the same; a refused one leaves nothing; a sealed
-- stream is whole. What is not asked for is left out: of the arguments the last ones, of
-- the keys those of what there is not.
local meta, waiters, stream, result, staged = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local flight, status, keep, form = ARGV[2], ARGV[3], ARGV[4], ARGV[6] or 'kept'

-- A small answer that nobody elsewhere has asked for, of one who owns: nearly all.
if form == 'inline' and status == 'done' then
  local held = redis.pcall('HMGET', meta, 'format', 'ownerToken', 'flight', 'status',
    'heartbeatAt', 'lease', 'joins', 'next')
  local since, lease = held[5], held[6]
  if held[1] == FORMAT and held[2] == ARGV[1] and held[3] == flight and held[4] == 'running'
    and not held[7] and not held[8] and since and lease and #since <= 16 and #lease <= 13
    and string.find(since, '^%d+$') and string.find(lease, '^%d+$')
    and at - lease * 1000 < tonumber(since) then
    -- The first write is one that is allowed where memory is full.
    redis.call('PEXPIRE', meta, keep)
    redis.call('HSET', meta, 'status', status, 'endedAt', at, 'fresh', ARGV[7])
    redis.call('SET', result, ARGV[8], 'PX', keep)
    return { 'OK' }
  end
end
