//! The rights that the README asks for.

/// What follows `ACL SETUSER flight` there.
pub(crate) fn of_the_readme() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let (_, rule) = readme.split_once("ACL SETUSER flight ").expect("a rule in the README");
    let (rule, _) = rule.split_once("```").expect("its end");
    rule.split_whitespace().map(str::to_owned).collect()
}

/// What a cluster takes besides, by the README's word.
pub(crate) fn in_a_cluster() -> Vec<String> {
    [of_the_readme(), besides("In a cluster these besides")].concat()
}

/// What it takes to hold answers.
pub(crate) fn to_hold() -> Vec<String> {
    besides("Where answers are used again, processes hold them")
}

/// What stands in the README's block after these words.
fn besides(words: &str) -> Vec<String> {
    let readme = include_str!("../../README.md");
    let (_, more) = readme.split_once(words).expect("rights in the README");
    let (_, more) = more.split_once("```text").expect("their block");
    let (more, _) = more.split_once("```").expect("its end");
    more.split_whitespace().map(str::to_owned).collect()
}

/// The user's password there.
pub(crate) const PASSWORD: &str = "PASSWORD";
