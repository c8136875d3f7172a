-- Tables, strings, closures, coroutines and floating point.
local N = 24
local grid = {}
for y = 1, N do grid[y] = {} for x = 1, N do grid[y][x] = (x * y + x) % 3 == 0 end end
local function step(g)
  local new = {}
  for y = 1, N do
    new[y] = {}
    for x = 1, N do
      local n = 0
      for dy = -1, 1 do for dx = -1, 1 do
        if (dx ~= 0 or dy ~= 0) and g[(y + dy - 1) % N + 1][(x + dx - 1) % N + 1] then n = n + 1 end
      end end
      new[y][x] = n == 3 or (g[y][x] and n == 2)
    end
  end
  return new
end
for _ = 1, 8 do grid = step(grid) end
for y = 1, 3 do
  local row = {}
  for x = 1, N do row[x] = grid[y][x] and "#" or "." end
  print(table.concat(row))
end
local words = {}
for w in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do words[#words + 1] = w:upper() end
table.sort(words)
print(table.concat(words, ","), #words)
local co = coroutine.wrap(function() local a, b = 0, 1 while true do coroutine.yield(a) a, b = b, a + b end end)
local last
for _ = 1, 60 do last = co() end
print(last, string.format("%.12g %q", math.sin(1) ^ math.pi, "a\0b"), 7 // 2, 2^53 | 0)
print(pcall(error, { code = 3 }), select("#", pcall(function() local x = nil; return x.y end)))
