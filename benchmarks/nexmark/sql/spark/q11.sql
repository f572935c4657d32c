SELECT bidder, num, window.start AS begins, window.end AS ends
FROM (
    SELECT bidder, session_window(date_time, '10 seconds') AS window, COUNT(*) AS num
    FROM bid GROUP BY bidder, session_window(date_time, '10 seconds')
)
