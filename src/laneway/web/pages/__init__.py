"""Pages: what people see. Server-rendered; scripts only add to them.

```
 a request ──▶ mount (routes, who asks) ──▶ a page's function: WebRequest → plain values ──▶ its template ──▶ HTML
                                              overview, jobs, job, errors, lanes, workers, schedules, history
                 around every page: frame (counters, health in words, session);  in every template: filters
```

A page is a function of a `WebRequest` (the site, who asks, the path's and the query's parameters) that returns a dict of plain
values for its template; it looks at the store through `app.inspect` and `app.stats` alone, and never at more than a page full of
jobs. It may raise whatever the API's functions raise: `Refused` and Laneway's own errors become a page that says so. One
table, `mount.PAGES`, has the function of each address.

In every template: `frame` (see `frame.PageFrame`), `link` for every address, and filters: `when` for every time, `number` for
every number, `json` for values, `quoted` for names in a path of the API. Everything is escaped; a page has no script and no
style in it.
"""
