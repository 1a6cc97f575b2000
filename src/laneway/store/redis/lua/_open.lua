-- _open.lua: nothing is done while a copy has closed the store. Stands behind _queue.lua.

if books[B_MOVED] then
    return redis.error_reply(MOVED_REPLY .. books[B_MOVED])
end
