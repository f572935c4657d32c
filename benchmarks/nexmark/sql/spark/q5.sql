-- A second aggregate in place of a join with the highest count: of equal counts one is left.
SELECT hot.auction, hot.num
FROM (
    SELECT window, MAX(STRUCT(num, auction)) AS hot
    FROM (
        SELECT auction, window(date_time, '10 seconds', '2 seconds') AS window, COUNT(*) AS num
        FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
    )
    GROUP BY window
)
