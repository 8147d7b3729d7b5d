-- Ends a flight. Promises: one outcome per flight, only from the owner of a
-- standing lease; asked again it says the same; a refused one leaves nothing; a sealed
-- stream is whole. What is not asked for is left out: of the arguments the last ones, of
-- the keys those of what there is not.
local meta, waiters, stream, result, staged = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local flight, status, keep, form = ARGV[2], ARGV[3], ARGV[4], ARGV[6] or 'kept'

-- A small answer of one who owns, and nothing of it is there yet: nearly all.
if form == 'inline' and status == 'done' then
  local held = redis.pcall('HMGET', meta, 'ownerToken', 'flight', 'status', 'heartbeatAt',
    'lease', 'format', 'joins', 'next')
  local since, lease, joins = held[4] or '', held[5] or '', held[7]
  if held[1] == ARGV[1] and held[2] == flight and held[3] == 'running' and held[6] == FORMAT
    and #since == #at and #lease > 0 and #lease <= 13
    and string.find(lease .. since, '^[1-9]%d*$') and at - lease * 1000 - since < 0
    and not held[8] and (not joins or #joins <= 13 and string.find(joins, '^[1-9]%d*$')) then
    -- The first write is one that is allowed where memory is full.
    redis.call('PEXPIRE', meta, keep)
    redis.call('HSET', meta, 'status', status, 'endedAt', at, 'fresh', ARGV[7])
    redis.call('SET', result, ARGV[8], 'PX', keep)
    -- Who waits has joined: they get it with the word that it is there.
    if joins then
      redis.call('DEL', waiters)
      local token = string.rep('0', 20 - #ARGV[1]) .. ARGV[1]
      redis.pcall(ARGV[12] or 'PUBLISH', ARGV[5] .. string.sub(meta, -66),
        FORMAT .. 'Bd' .. flight .. token .. ARGV[8])
    end
    return 'OK'
  end
end
