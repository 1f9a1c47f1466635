//! `xebec record --list` and `--rm`.

use crate::program::Program;

#[test]
fn without_recordings_there_is_nothing_to_list_or_to_remove() {
    let program = Program::new();
    let output = program.output(&["record", "--list"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("no recordings")
    );
    let output = program.output(&["record", "--rm", "sha256:0123456789ab"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(program.output(&["record"]).status.code(), Some(2));
}
