-- The Nexmark project joins with the end of the window, which is no time attribute, so that Flink plans a regular join
-- that keeps each bid for ever. This is the window top-1 that Flink's documentation advises.
SELECT auction, price, bidder, `dateTime`, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
)
WHERE place <= 1
