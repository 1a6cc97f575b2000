-- _open.lua: return an error if a copy has closed the store. Stands behind _queue.lua.

if books[B_MOVED] then
    return redis.error_reply(MOVED_REPLY .. books[B_MOVED])
end
