-- All bids that may win: those of equal price and time too.
SELECT A.id, A.item_name, A.seller, A.category, B.bidder, B.price, B.date_time AS bid_time, B.extra AS bid_extra
FROM auction A JOIN bid B ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
QUALIFY RANK() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time) = 1
