SELECT P.id, P.name, P.window.start AS begins
FROM (
    SELECT id, name, window(date_time, '10 seconds') AS window
    FROM person GROUP BY id, name, window(date_time, '10 seconds')
) P JOIN (
    SELECT seller, window(date_time, '10 seconds') AS window
    FROM auction GROUP BY seller, window(date_time, '10 seconds')
) A ON P.id = A.seller AND P.window = A.window
