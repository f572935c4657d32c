-- The tables of the Nexmark project over the wide table. {path}: the folder with the files.
CREATE TABLE events (
    kind INT, date_time TIMESTAMP(3), extra STRING,
    id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,
    auction_id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
    expires TIMESTAMP(3), seller BIGINT, category BIGINT,
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
    WATERMARK FOR date_time AS date_time - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true');

CREATE TEMPORARY VIEW person AS
SELECT id, name, email_address AS emailAddress, credit_card AS creditCard, city, state, date_time AS `dateTime`, extra
FROM events WHERE kind = 0;

CREATE TEMPORARY VIEW auction AS
SELECT auction_id AS id, item_name AS itemName, description, initial_bid AS initialBid, reserve,
    date_time AS `dateTime`, expires, seller, category, extra
FROM events WHERE kind = 1;

CREATE TEMPORARY VIEW bid AS
SELECT auction, bidder, price, channel, url, date_time AS `dateTime`, extra
FROM events WHERE kind = 2;
