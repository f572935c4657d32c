WITH marked AS (
    SELECT bidder, date_time,
        COALESCE(date_time - LAG(date_time) OVER follow >= INTERVAL 10 SECOND, TRUE) AS is_first
    FROM bid WINDOW follow AS (PARTITION BY bidder ORDER BY date_time)
), numbered AS (
    SELECT bidder, date_time, SUM(CAST(is_first AS INT)) OVER (
        PARTITION BY bidder ORDER BY date_time RANGE UNBOUNDED PRECEDING
    ) AS session
    FROM marked
)
SELECT bidder, COUNT(*) AS num, MIN(date_time) AS begins, MAX(date_time) + INTERVAL 10 SECOND AS ends
FROM numbered GROUP BY bidder, session
