-- By the clock of the tasks: only the totals of each bidder are known.
SELECT bidder, COUNT(*) AS num FROM bid GROUP BY bidder
