-- A bid is in the five windows of 10 s that begin at the multiples of 2 s up to its time.
WITH counts AS (
    SELECT auction, time_bucket(INTERVAL 2 SECOND, date_time) - step * INTERVAL 2 SECOND AS begins, COUNT(*) AS num
    FROM bid, range(5) AS steps(step)
    GROUP BY ALL
)
SELECT auction, num FROM counts QUALIFY num = MAX(num) OVER (PARTITION BY begins)
