//! The rights that the guide asks for.

/// What follows `ACL SETUSER flight` there.
pub(crate) fn of_the_guide() -> Vec<String> {
    let page = include_str!("../../docs/operations.md");
    let (_, rule) = page.split_once("ACL SETUSER flight ").expect("a rule on the page");
    let (rule, _) = rule.split_once("```").expect("its end");
    rule.split_whitespace().map(str::to_owned).collect()
}

/// What a cluster takes besides, by its word.
pub(crate) fn in_a_cluster() -> Vec<String> {
    let mut rights = of_the_guide();
    let page = include_str!("../../docs/operations.md");
    let (_, more) = page.split_once("In a cluster these besides").expect("rights on the page");
    let (_, more) = more.split_once("```text").expect("their block");
    let (more, _) = more.split_once("```").expect("its end");
    rights.extend(more.split_whitespace().map(str::to_owned));
    rights
}

/// The user's password there.
pub(crate) const PASSWORD: &str = "PASSWORD";
