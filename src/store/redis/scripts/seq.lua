-- Counts on. In a cluster the counter lies in a slot of its own, so that no step can
-- look at it: whoever was granted a token says so here, and has a number for the next
-- one. Promises: the counter never goes down, and the answer is above the token.
local seq, floor = KEYS[1], tonumber(ARGV[1])

local count = math.max(floor + 1, now)
local last_count = is(seq, 'string') and number(redis.call('GET', seq))
if last_count then
  count = math.max(count, last_count + 1)
end
if count >= LIMIT then
  count = now
end
redis.call('SET', seq, count)
return { count }
