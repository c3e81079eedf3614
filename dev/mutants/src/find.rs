//! Finds the mutants in a source file. Must not know how they are woven into the build.
//!
//! Left out are tests, `impl Debug` and `impl Display` and functions that return `fmt::Result` (texts), constants, patterns, types, and
//! the bodies of macros, which the parser does not read.

use core::ops::Range;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, Pat, ReturnType, Signature, Stmt, UnOp};

use crate::values;

/// A place in the source where mutants are switched.
#[derive(Debug)]
pub(crate) struct Site {
    /// The replaced bytes of the source. Empty if text is only inserted.
    pub(crate) range: Range<usize>,
    pub(crate) form: Form,
    pub(crate) alternatives: Vec<Alternative>,
    pub(crate) function: String,
    pub(crate) line: usize,
    /// Whether the function is `const`, so that it cannot read the switch unless `const` is removed.
    pub(crate) is_const: bool,
}

/// How the mutants of a site are switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An expression has another value.
    Expression,
    /// A function returns early. The text is inserted at the start of its body.
    Body,
    /// A statement is left out.
    Statement,
    /// A match arm never matches. A guard is inserted after its pattern.
    Arm,
    /// The word `const` of a function.
    Const,
}

/// One change at a site.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    /// The changed code. Empty for [`Form::Statement`] and [`Form::Arm`].
    pub(crate) code: String,
    /// The change in words.
    pub(crate) change: String,
}

/// All sites of a file.
pub(crate) fn sites(source: &str) -> Result<Vec<Site>, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut finder = Finder {
        source,
        sites: Vec::new(),
        scope: Vec::new(),
        is_const: false,
        is_default: false,
    };
    finder.visit_file(&file);
    Ok(finder.sites)
}

/// Whether the attributes say that an item is only for tests.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_cfg_test = path.is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                let text = list.tokens.to_string().replace(' ', "");
                text == "test" || text.starts_with("all(test,")
            });
        is_cfg_test || path.is_ident("test") || path.is_ident("should_panic")
    })
}

struct Finder<'a> {
    source: &'a str,
    sites: Vec<Site>,
    /// The types and functions around the current place.
    scope: Vec<String>,
    is_const: bool,
    /// Whether the current function is that of `impl Default`.
    is_default: bool,
}

impl<'a> Finder<'a> {
    fn text(&self, part: &impl Spanned) -> &'a str {
        &self.source[part.span().byte_range()]
    }

    /// The text of a part in one line, shortened for a report.
    fn short(&self, part: &impl Spanned) -> String {
        shorten(self.text(part))
    }

    fn add(
        &mut self,
        range: Range<usize>,
        line: usize,
        form: Form,
        alternatives: Vec<Alternative>,
    ) {
        if alternatives.is_empty() && form != Form::Const {
            return;
        }
        self.sites.push(Site {
            range,
            form,
            alternatives,
            function: self.scope.join("::"),
            line,
            is_const: self.is_const,
        });
    }

    fn add_for(&mut self, part: &impl Spanned, form: Form, alternatives: Vec<Alternative>) {
        let span = part.span();
        self.add(span.byte_range(), span.start().line, form, alternatives);
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        if is_for_tests(attributes) || returns_fmt_result(&signature.output) {
            return;
        }
        self.scope.push(signature.ident.to_string());
        let was_const = self.is_const;
        self.is_const = signature.constness.is_some();
        if let Some(word) = &signature.constness {
            self.add_for(word, Form::Const, Vec::new());
        }
        if !self.is_default {
            self.replace_body(signature, body);
        }
        self.visit_block(body);
        self.is_const = was_const;
        self.scope.pop();
    }

    /// Adds the mutants that return at once.
    fn replace_body(&mut self, signature: &Signature, body: &Block) {
        if body.stmts.is_empty() {
            return;
        }
        let open = body.brace_token.span.open();
        let text = self.text(body);
        let text = text.trim_start_matches('{').trim_end_matches('}').trim();
        let returned = values::of_result(&signature.output);
        let differs = |value: &String| {
            value != text && !(value == "Default::default()" && text.ends_with("::default()"))
        };
        let alternatives = returned
            .into_iter()
            .filter(differs)
            .map(|value| Alternative {
                change: format!("replace the body with {value}"),
                code: value,
            });
        let alternatives = alternatives.collect();
        let at = open.byte_range().end;
        let line = signature.ident.span().start().line;
        self.add(at..at, line, Form::Body, alternatives);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of_trait = item
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last());
        let of_trait = of_trait.map(|segment| segment.ident.to_string());
        let is_text = matches!(of_trait.as_deref(), Some("Debug" | "Display"));
        if is_text || is_for_tests(&item.attrs) {
            return;
        }
        self.scope.push(type_name(&item.self_ty));
        self.is_default = of_trait.as_deref() == Some("Default");
        visit::visit_item_impl(self, item);
        self.is_default = false;
        self.scope.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.scope.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.scope.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.attrs, &item.sig, body);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && is_deletable(expression)
        {
            let change = format!("delete `{};`", self.short(expression));
            let code = String::new();
            self.add_for(
                statement,
                Form::Statement,
                vec![Alternative { code, change }],
            );
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let alternatives = match expression {
            Expr::Binary(binary) if !has_let(expression) => {
                let (left, right) = (self.text(&binary.left), self.text(&binary.right));
                let operator = self.text(&binary.op);
                let change = |other: &&str| Alternative {
                    code: match operator.len() > 1 && is_assignment(&binary.op) {
                        true => format!("{left} {other} ({right})"),
                        false => format!("({left}) {other} ({right})"),
                    },
                    change: format!("{operator} to {other} in `{}`", self.short(expression)),
                };
                others(&binary.op).iter().map(change).collect()
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_)) => {
                let operator = self.text(&unary.op);
                vec![Alternative {
                    code: self.text(&unary.expr).to_owned(),
                    change: format!("delete {operator} in `{}`", self.short(expression)),
                }]
            }
            Expr::Macro(call) if call.mac.path.is_ident("matches") => vec![Alternative {
                code: format!("!{}", self.text(expression)),
                change: format!("negate `{}`", self.short(expression)),
            }],
            Expr::Struct(literal) if literal.rest.is_some() => self.without_fields(literal),
            _ => Vec::new(),
        };
        self.add_for(expression, Form::Expression, alternatives);
        visit::visit_expr(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let has_wildcard = expression.arms.last().is_some_and(|arm| {
            arm.guard.is_none() && is_wildcard(&arm.pat) && expression.arms.len() > 1
        });
        for (index, arm) in expression.arms.iter().enumerate() {
            let pattern = self.short(&arm.pat);
            if let Some((_, guard)) = &arm.guard {
                let always = |value: &str| Alternative {
                    code: value.to_owned(),
                    change: format!("guard to {value} in `{pattern} if {}`", self.short(guard)),
                };
                let alternatives = vec![always("true"), always("false")];
                self.add_for(guard, Form::Expression, alternatives);
            } else if has_wildcard && index + 1 < expression.arms.len() {
                let end = arm.pat.span().byte_range().end;
                let line = arm.pat.span().start().line;
                let change = format!("delete arm `{pattern}`");
                let code = String::new();
                self.add(
                    end..end,
                    line,
                    Form::Arm,
                    vec![Alternative { code, change }],
                );
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_repeat(&mut self, expression: &'ast syn::ExprRepeat) {
        self.visit_expr(&expression.expr);
    }

    // Constants, patterns, types and attributes cannot read the switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }
}

impl Finder<'_> {
    /// A struct literal with a base, without each of its fields: the base gives the value instead.
    fn without_fields(&self, literal: &syn::ExprStruct) -> Vec<Alternative> {
        let (start, end) = (
            literal.span().byte_range().start,
            literal.span().byte_range().end,
        );
        let field = |pair: syn::punctuated::Pair<&syn::FieldValue, &syn::Token![,]>| {
            let field = *pair.value();
            let comma = pair.punct().map(|comma| comma.span().byte_range().end);
            let range = field.span().byte_range();
            let after = comma.unwrap_or(range.end);
            let (before, after) = (&self.source[start..range.start], &self.source[after..end]);
            Alternative {
                code: format!("{before}{after}"),
                change: format!("delete field `{}`", self.short(&field.member)),
            }
        };
        literal.fields.pairs().map(field).collect()
    }
}

/// The operators that replace this one.
fn others(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", "==", ">"],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "==", "<"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        _ => &[],
    }
}

fn is_assignment(operator: &BinOp) -> bool {
    others(operator)
        .iter()
        .any(|other| other.ends_with('=') && !matches!(*other, "==" | "!=" | "<=" | ">="))
}

/// Whether a chain of `&&` has a `let`, which must stay directly in the condition.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

/// Whether a statement is a call that can be left out. `drop` only ends a scope early.
fn is_deletable(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(_) => true,
        Expr::Call(call) => !matches!(&*call.func, Expr::Path(path) if path.path.is_ident("drop")),
        Expr::Try(inner) => is_deletable(&inner.expr),
        _ => false,
    }
}

/// Whether a pattern matches everything.
fn is_wildcard(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) => true,
        // A lower-case name binds; an upper-case one is a constant or a variant.
        Pat::Ident(name) => {
            name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase)
        }
        _ => false,
    }
}

fn returns_fmt_result(result: &ReturnType) -> bool {
    let ReturnType::Type(_, ty) = result else {
        return false;
    };
    let syn::Type::Path(path) = &**ty else {
        return false;
    };
    let mut segments = path.path.segments.iter().rev();
    segments.next().is_some_and(|last| last.ident == "Result")
        && segments.next().is_some_and(|module| module.ident == "fmt")
}

/// The last name in a type, without its parameters.
fn type_name(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Path(path) => {
            let last = path.path.segments.last();
            last.map(|segment| segment.ident.to_string())
                .unwrap_or_default()
        }
        syn::Type::Reference(reference) => type_name(&reference.elem),
        _ => "_".to_owned(),
    }
}

/// One line of at most 60 characters.
fn shorten(text: &str) -> String {
    let without_comments: Vec<&str> = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line).trim())
        .collect();
    let line = without_comments.join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The code of a file without comments and tests, for its hash.
pub(crate) fn code_only(source: &str) -> Result<String, String> {
    let tokens: TokenStream = source.parse().map_err(|_| "it is not Rust".to_owned())?;
    let mut code = String::new();
    write_code(tokens, &mut code);
    Ok(code)
}

fn write_code(tokens: TokenStream, code: &mut String) {
    let mut is_test = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if let TokenTree::Punct(mark) = &token
            && mark.as_char() == '#'
        {
            // `#![…]` and `//!` have a mark between.
            let bang = tokens.next_if(|next| next.to_string() == "!");
            if let Some(attribute) = tokens.peek().map(ToString::to_string) {
                let attribute = attribute.replace(' ', "");
                is_test |= attribute.starts_with("[cfg(test)]")
                    || attribute.starts_with("[cfg(all(test,")
                    || attribute == "[test]";
                let is_kept = bang.is_none() && !attribute.starts_with("[doc=");
                let attribute = tokens.next();
                if is_kept && !is_test {
                    code.push_str(&format!(
                        "#{}",
                        attribute.map(|it| it.to_string()).unwrap_or_default()
                    ));
                }
            }
            continue;
        }
        let ends_item = match &token {
            TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace,
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        if !is_test {
            match token {
                TokenTree::Group(group) => {
                    code.push_str(&format!("{:?}", group.delimiter()));
                    write_code(group.stream(), code);
                    code.push_str(" end ");
                }
                TokenTree::Ident(_) | TokenTree::Literal(_) | TokenTree::Punct(_) => {
                    code.push_str(&token.to_string());
                    code.push(' ');
                }
            }
        }
        if ends_item {
            is_test = false;
        }
    }
}

#[cfg(test)]
mod tests;
