//! What a relay carries between a host and a server of any two eras.

mod chain;

use chain::exchanges::EXCHANGES;
use chain::{Chain, Chunking, Eras, Order};

/// Every kind of exchange, between all eras, however the bytes are cut and whoever is quicker.
#[test]
fn every_exchange_is_carried_between_all_eras() {
    let ways = Chunking::ALL.map(|chunking| (chunking, Order::Fair));
    let orders = (1..=4).map(|seed| (Chunking::Whole, Order::Random(seed)));
    let ways: Vec<_> = ways.into_iter().chain(orders).collect();
    for exchange in EXCHANGES {
        for eras in Eras::ALL
            .into_iter()
            .filter(|eras| (exchange.exists)(*eras))
        {
            for (chunking, order) in &ways {
                println!("{} in {eras:?}, {chunking:?}, {order:?}", exchange.name);
                let mut chain = Chain::new(eras).chunked(*chunking).ordered(*order);
                let calls = (exchange.play)(&mut chain);
                (exchange.check)(&chain, &calls);
                assert_eq!(chain.lives(), 1, "nothing happened to the server");
                chain.finish();
            }
        }
    }
}
