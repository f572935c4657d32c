-- The average of ints is an int, as in Flink: the fraction is dropped.
SELECT category, CAST(SUM(final) // COUNT(*) AS BIGINT) AS average
FROM (
    SELECT MAX(B.price) AS final, A.category
    FROM auction A JOIN bid B ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    GROUP BY A.id, A.category
)
GROUP BY category
