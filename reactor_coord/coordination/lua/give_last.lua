-- The common case of give, before anything else is even defined: one key, its last acquisition, and nobody in line.
--
-- KEYS, ARGV and reply as in give.lua.
-- Cost  O(1), four commands.
if #KEYS == 6 and redis.call('EXISTS', KEYS[3]) == 0 then
  local hold = redis.call('HMGET', KEYS[2], 'owner', 'claim', 'count', 't:' .. ARGV[4])
  if hold[1] == ARGV[2] and hold[2] == ARGV[3] and hold[3] == '1' and hold[4] then
    redis.call('DEL', KEYS[2])
    redis.call('ZREM', KEYS[1], ARGV[6])
    return {}
  end
end
