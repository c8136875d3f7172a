-- Objects, closures, tables and strings, as scripts use them. Argument: rounds.
local rounds = tonumber(arg[1])

local function sieve(n)
	local composite, count = {}, 0
	for i = 2, n do
		if not composite[i] then
			count = count + 1
			for j = i * i, n, i do composite[j] = true end
		end
	end
	return count
end

local Tree = {}
Tree.__index = Tree
function Tree.insert(node, key)
	if not node then return setmetatable({ key = key }, Tree) end
	if key < node.key then node.left = Tree.insert(node.left, key)
	else node.right = Tree.insert(node.right, key) end
	return node
end
function Tree.sum(node)
	if not node then return 0 end
	return node.key + Tree.sum(node.left) + Tree.sum(node.right)
end

local seed = 42
local function random(n)
	seed = (seed * 1103515245 + 12345) % 2147483648
	return seed % n
end

local function words(n)
	local t = {}
	for i = 1, n do
		local w = string.format("w%d", random(500))
		t[w] = (t[w] or 0) + #w
	end
	local keys = {}
	for k in pairs(t) do keys[#keys + 1] = k end
	table.sort(keys, function(a, b) return t[a] > t[b] or (t[a] == t[b] and a < b) end)
	return keys[1]
end

local total = 0
for round = 1, rounds do
	total = total + sieve(3000)
	local root
	for _ = 1, 500 do root = Tree.insert(root, random(1000000)) end
	total = total + Tree.sum(root)
	local w = words(1000)
	total = total + #w + #(w:rep(10):gsub("%d", "x"))
end
print(total)
