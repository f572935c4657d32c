SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time, B.extra,
    A.item_name, A.description, A.initial_bid, A.reserve, A.date_time AS auction_time, A.expires, A.seller, A.category,
    A.extra AS auction_extra
FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10
