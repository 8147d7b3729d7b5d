-- Adds pieces to the stream of a flight that runs. Promises: only the owner of a
-- standing lease adds; pieces follow each other without a hole and none is there
-- twice; where memory is full nothing is added, and the count says what is there.
local meta, stream = KEYS[1], KEYS[2]
local token, flight, first = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local kept_from, keep, inline = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local channels, publish = ARGV[7], ARGV[8]
-- So many arguments come before the pieces.
local HEAD = 8

local record = read(meta, true)
if not owned(record, token, flight) then
  if ended_by(record, token, flight) then
    return { 'OVER' }
  end
  return lost(record, token, flight)
end

local function entry(index)
  return int(token) .. '-' .. int(index + 1)
end

-- Why the piece was refused; nothing where it was not.
local function add(index, piece)
  local added = redis.pcall('XADD', stream, entry(index), 'p', piece)
  return type(added) == 'table' and added.err or nil
end

local there = pieces(record, stream)
if first > there then
  return { 'GAP', there }
end
-- Where the stream is gone, it begins anew.
local from, gone = there, there > 0 and record.trimmed or 0
for i = HEAD + 1 + there - first, #ARGV do
  local refused = add(there, ARGV[i])
  if refused and (is_ahead(refused) or there == 0 and is_foreign(refused)) then
    -- Left over from lost data: nobody can tell what it is, or add to it.
    redis.call('DEL', stream)
    gone = 0
    if there > 0 then
      redis.call('HSET', meta, 'next', '0', 'trimmed', '0')
      return { 'GAP', 0 }
    end
    refused = add(there, ARGV[i])
  end
  if refused and there == from then
    return string.find(refused, 'OOM', 1, true) and { 'FULL' } or redis.error_reply(refused)
  elseif refused then
    break
  end
  there = there + 1
end

kept_from = math.min(kept_from, there)
if kept_from > gone then
  redis.call('XTRIM', stream, 'MINID', '=', entry(kept_from))
  gone = kept_from
end
if there > from or gone ~= record.trimmed then
  redis.call('HSET', meta, 'next', there, 'trimmed', gone)
end
last(stream, keep)
if there > from then
  local piece = there - from == 1 and ARGV[HEAD + there - first]
  if piece and #piece <= inline then
    push(publish, channels, meta, 'P', record, 'running', index(from) .. piece)
  else
    push(publish, channels, meta, 'N', record, 'running', index(from))
  end
end
return { 'OK', there }
