//! What a relay carries between a host and a server of any two eras.

mod chain;

use chain::{Chain, Eras};

#[test]
fn hello() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        for tool in ["echo", "count", "form", "both", "roots"] {
            let call = chain.tool(tool);
            chain.until_done(call);
            println!("{}", chain.text(call));
        }
        chain.finish();
    }
}
