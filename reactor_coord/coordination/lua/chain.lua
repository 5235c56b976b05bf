-- Runs several operations as one, each with its own KEYS and ARGV, in order.
--
-- Before this: `local CALLS`, the operations as functions of KEYS and ARGV.
-- KEYS  those of all, one after the other
-- ARGV  1 '1' to stop behind the first whose reply does not begin with 1  then for each: number of keys, number of
--       arguments, its arguments
-- Returns the replies of those that ran.
-- True  nothing comes between them. What ran stays done, whatever a later one answers.
-- Cost  that of the operations.
local replies, key, arg = {}, 0, 1
for i, call in ipairs(CALLS) do
  local keys, args, counts = {}, {}, { tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]) }
  arg = arg + 2
  for k = 1, counts[1] do keys[k] = KEYS[key + k] end
  for a = 1, counts[2] do args[a] = ARGV[arg + a] end
  key, arg = key + counts[1], arg + counts[2]
  replies[i] = call(keys, args)
  if ARGV[1] == '1' and replies[i][1] ~= 1 then break end
end
return replies
