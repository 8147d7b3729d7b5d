//! The rights that the README asks for.

/// What follows `ACL SETUSER flight` there.
pub(crate) fn of_the_readme() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let (_, rule) = readme.split_once("ACL SETUSER flight ").expect("a rule in the README");
    let (rule, _) = rule.split_once("```").expect("its end");
    rule.split_whitespace().map(str::to_owned).collect()
}

/// The user's password there.
pub(crate) const PASSWORD: &str = "PASSWORD";
