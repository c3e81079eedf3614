use super::{Form, code_only, sites};

/// The changes that are found, in order.
fn changes(source: &str) -> Vec<String> {
    let sites = sites(source).expect("it is Rust");
    let alternatives = sites.into_iter().flat_map(|site| site.alternatives);
    alternatives.map(|alternative| alternative.change).collect()
}

#[test]
fn each_operator_has_its_changes() {
    let source = "fn f(a: u8, b: u8) -> Kind { g(a == b && !c) }";
    assert_eq!(
        changes(source),
        [
            "replace the body with Default::default()",
            "&& to || in `a == b && !c`",
            "== to != in `a == b`",
            "delete ! in `!c`",
        ]
    );
}

#[test]
fn chain_with_let_keeps_its_operators() {
    let source = "fn f() { if a == b && let Some(c) = d { g() } }";
    assert_eq!(
        changes(source),
        ["replace the body with ()", "== to != in `a == b`"]
    );
}

#[test]
fn arm_before_a_wildcard_can_go_and_a_guard_has_two_values() {
    let source = "fn f() -> &'static T { match a { 1 => b, 2 if c => d, _ => e } }";
    assert_eq!(
        changes(source),
        [
            "delete arm `1`",
            "guard to true in `2 if c`",
            "guard to false in `2 if c`",
        ]
    );
}

#[test]
fn call_statement_can_go_but_drop_cannot() {
    let source = "fn f() -> &'static T { a.b(); drop(c); d()?; e }";
    assert_eq!(changes(source), ["delete `a.b();`", "delete `d()?;`"]);
}

#[test]
fn field_before_a_base_can_go() {
    let source = "fn f() -> &'static T { T { a: 1, ..b } }";
    let found = sites(source).expect("it is Rust");
    assert_eq!(found[0].alternatives[0].code, "T {  ..b }");
}

#[test]
fn tests_texts_and_constants_are_left_out() {
    let source = "
        const A: bool = 1 == 2;
        impl fmt::Display for B { fn fmt(&self) -> u8 { 1 + 1 } }
        fn text() -> fmt::Result { a == b }
        #[cfg(test)] mod tests { fn c() -> bool { a == b } }
        #[test] fn d() { e() }
    ";
    assert!(changes(source).is_empty());
}

#[test]
fn const_function_is_marked() {
    let sites = sites("impl A { const fn b(self) -> bool { true } }").expect("it is Rust");
    assert_eq!(sites[0].form, Form::Const);
    assert!(
        sites
            .iter()
            .all(|site| site.is_const && site.function == "A::b")
    );
    // The value that the function returns already is no change.
    assert_eq!(sites[1].alternatives.len(), 1);
}

#[test]
fn comments_and_tests_are_not_in_the_code() {
    let plain = "fn a() { b() }\nfn d() {}";
    let longer = "//! Why.\n/// What.\nfn a() { /* how */ b() }\n#[cfg(test)]\nmod tests { fn c() {} }\n#[cfg(test)] use x;\nfn d() {}";
    assert_eq!(code_only(plain), code_only(longer));
    assert_ne!(code_only(plain), code_only("fn a() { c() }\nfn d() {}"));
    assert_ne!(code_only("fn a() { b }"), code_only("fn a() { (b) }"));
}
