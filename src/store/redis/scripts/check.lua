-- Finds out what of all that the steps do the user may not, or the server cannot.
-- Promises: every command is tried on a key of its own, which holds text, so that
-- most of them change nothing, and which is gone at the end, or a second later.
local key, channel, publish, again = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1'
local found = {}

local function try(command, ...)
  local answer = redis.pcall(command, ...)
  local refusal = type(answer) == 'table' and answer.err
  if not refusal then
    return true
  elseif string.find(refusal, 'Unknown', 1, true) then
    table.insert(found, 'unknown ' .. command)
  elseif string.find(refusal, 'run th', 1, true) then
    table.insert(found, 'command ' .. command)
  elseif string.find(refusal, 'channel', 1, true) then
    table.insert(found, 'channel ' .. channel)
  elseif string.find(refusal, 'NOPERM', 1, true) or string.find(refusal, 'the keys', 1, true) then
    table.insert(found, 'key ' .. key)
  elseif string.find(refusal, '^%-?READONLY') then
    table.insert(found, 'readonly ' .. command)
  elseif command == 'XTRIM' and string.find(refusal, 'syntax', 1, true) then
    local info = redis.pcall('INFO', 'server')
    local version = type(info) == 'string' and string.match(info, 'redis_version:([%w.-]+)')
    table.insert(found, 'old ' .. (version or ''))
  end
  return false, refusal
end

local text, refusal = try('SET', key, '1', 'PX', 1000)
if again and refusal and #found == 0 then
  -- There is no room, say. Before Redis 7 it is told with where it happened.
  return { err = string.match(refusal, '^@.-%-(%u.*)$') or refusal }
end
try('TIME')
try('TYPE', key)
try('GET', key)
try('EXISTS', key)
try('GETRANGE', key, 0, 0)
try('STRLEN', key)
try('RENAME', key, key)
try('PTTL', key)
try('PEXPIRE', key, 1000)
try('HLEN', key)
try('HGETALL', key)
try('HMGET', key, 'f')
try('HDEL', key, 'f')
try('ZCARD', key)
try('ZSCORE', key, 'm')
try('ZRANGE', key, 0, 0)
try('ZREM', key, 'm')
try('ZREMRANGEBYSCORE', key, 0, 0)
try('XRANGE', key, '-', '+', 'COUNT', 1)
try('XREVRANGE', key, '+', '-', 'COUNT', 1)
try('XTRIM', key, 'MINID', '=', '0-1')
-- These make a key where there is none.
if text then
  try('HSET', key, 'f', '1')
  try('HINCRBY', key, 'f', 1)
  try('ZADD', key, 1, 'm')
  try('XADD', key, '*', 'f', '1')
end
try(publish, channel, '')
try('DEL', key)
return found
