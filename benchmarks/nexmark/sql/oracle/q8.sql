SELECT DISTINCT P.id, P.name, time_bucket(INTERVAL 10 SECOND, P.date_time) AS begins
FROM person P JOIN auction A
ON P.id = A.seller AND time_bucket(INTERVAL 10 SECOND, P.date_time) = time_bucket(INTERVAL 10 SECOND, A.date_time)
