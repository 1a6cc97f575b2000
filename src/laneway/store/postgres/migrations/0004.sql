-- 0004.sql: the tables of version 4: one sequence more than in version 3.

-- It is raised when due jobs were put back to the front of their queue. Workers whose walks begin behind the front then look there.
create sequence $schema.back;
