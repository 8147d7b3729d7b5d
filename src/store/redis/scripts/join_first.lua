-- Own, follow, look or take over: one step decides which it is.
--
-- Promises: a lease is granted only where none stands; tokens of a key grow; who
-- knows token N gets no outcome older than N; a look grants nothing.
local meta, waiters, result, stream, seq = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local flight = ARGV[1]

-- Nobody has the key, and who asks knows of no flight, as nearly all who own. What others
-- left of it, if anything, is seen to when it is met.
local size, last_token = redis.pcall('HLEN', meta), nil
if size == 0 and seq and ARGV[3] == '0' and not ARGV[9] then
  -- Refused where memory is full, with nothing written yet.
  last_token = redis.pcall('SET', seq, at, 'GET')
  -- Numbers of one length are in the order of their texts; what is none counts for nothing.
  if not last_token or type(last_token) == 'string' and #last_token == #at
    and last_token < at then
    redis.call('HSET', meta, 'ownerToken', at, 'flight', flight, 'status', 'running',
      'heartbeatAt', at, 'lease', ARGV[4], 'format', FORMAT, 'badge', ARGV[7])
    redis.call('PEXPIRE', meta, 2 * ARGV[4])
    -- The token alone: to answer with a table takes as long as a command does.
    return at
  end
end
-- An answer that is there, for one who takes an older one, as nearly all who find one.
local INLINE = 4096
if ARGV[3] == '0' and ARGV[5] ~= '0' and type(size) == 'number' and size > 0 and size < 64 then
  local found = redis.call('HMGET', meta, 'ownerToken', 'flight', 'status', 'endedAt', 'fresh',
    'format', 'next', 'sealed')
  local token, id, ended, fresh = found[1] or '', found[2] or '', found[4] or '', found[5] or ''
  if found[3] == 'done' and found[6] == FORMAT and not found[7] and not found[8]
    and id ~= flight and #id == 32 and not string.find(id, '[^0-9a-f]')
    and #token == #at and token < '9' and #ended == #at
    and fresh ~= '' and #fresh <= 13 and string.find(token .. ended .. fresh, '^[1-9]%d*$') then
    -- A step back of the clock is no age.
    local age = math.max(at - ended, 0)
    if age < fresh * 1000 and age < ARGV[5] * 1000 then
      -- One byte more than it would give: then it is too large for a script.
      local body = redis.pcall('GETRANGE', result, 0, INLINE)
      if type(body) == 'string' and body ~= '' then
        return { 'DONE', token, id, 0, #body <= INLINE and body, 1,
          math.floor(age / 1000) }
      end
    end
  end
end
