-- The common case of take, before anything else is even defined: one key that nobody has.
--
-- KEYS, ARGV and reply as in take.lua.
-- Cost  O(1), eight commands.
if #KEYS == 6 and redis.call('EXISTS', KEYS[2]) == 0 then
  local fence, since, ttl = next_fence(KEYS[6]), int(NOW), ARGV[5]
  redis.call('HSET', KEYS[2], 'owner', ARGV[3], 'claim', ARGV[4], 'state', 'held', 'fence', fence, 'since', since,
    'count', '1', 'info', ARGV[12], 't:' .. ARGV[2], 'free')
  redis.call('PEXPIRE', KEYS[2], ttl)
  redis.call('ZADD', KEYS[1], int(NOW + ttl), ARGV[14])
  redis.call('PEXPIRE', KEYS[1], INDEX_KEEP)
  if ARGV[7] ~= '' and redis.call('HDEL', KEYS[4], ARGV[7]) == 1 then
    redis.call('ZREM', KEYS[3], ARGV[7])
    local prefix = string.match(KEYS[1], '^(.*):index:lock$')
    if prefix then redis.call('HDEL', prefix .. ':waits:' .. ARGV[3], 'lock\31' .. ARGV[14]) end
  end
  if ARGV[9] ~= '' then redis.call('DEL', ARGV[9]) end
  return { 1, { 'free', fence, since, '', '' } }
end
