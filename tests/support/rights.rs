//! The rights that the guide asks for.

const PAGE: &str = include_str!("../../docs/operations.md");

/// What follows `ACL SETUSER flight` there.
pub(crate) fn of_the_guide() -> Vec<String> {
    let (_, rule) = PAGE.split_once("ACL SETUSER flight ").expect("a rule on the page");
    let (rule, _) = rule.split_once("```").expect("its end");
    rule.split_whitespace().map(str::to_owned).collect()
}

/// What a cluster takes besides, by its word.
pub(crate) fn in_a_cluster() -> Vec<String> {
    [of_the_guide(), besides("In a cluster these besides")].concat()
}

/// What it takes to hold answers.
pub(crate) fn to_hold() -> Vec<String> {
    besides("Where answers are used again, processes hold them")
}

/// What stands in the page's block after these words.
fn besides(words: &str) -> Vec<String> {
    let (_, more) = PAGE.split_once(words).expect("rights on the page");
    let (_, more) = more.split_once("```text").expect("their block");
    let (more, _) = more.split_once("```").expect("its end");
    more.split_whitespace().map(str::to_owned).collect()
}

/// The user's password there.
pub(crate) const PASSWORD: &str = "PASSWORD";
