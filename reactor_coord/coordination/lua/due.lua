-- The keys whose hold or grant should have lapsed by now.
--
-- ARGV  2 how many at most
-- Returns their raw keys, the longest lapsed first.
-- Cost  O(log of what is live + answered).
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(NOW), 'LIMIT', 0, ARGV[2])
