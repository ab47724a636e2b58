//! `pipec fmt` as a whole process: which files it rewrites, what it prints, and how it exits.

mod process;

use process::{folder, pipec};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const LOOSE: &str = "param  a=1 // one\n";
const STYLED: &str = "param a = 1                                // one\n";
const BROKEN: &str = "param a = (1\n";

#[test]
fn files_and_folders_are_rewritten_and_named() {
    let files = [("a.pipe", LOOSE), ("b.pipe", STYLED), ("c.txt", LOOSE)];
    let folder = folder("fmt-rewrites", &files);
    for inside in ["sub", ".hidden"] {
        fs::create_dir_all(folder.join(inside)).expect("a folder");
        fs::write(folder.join(inside).join("d.pipe"), LOOSE).expect("a file");
    }
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a file");
    let time = |name: &str| fs::metadata(folder.join(name)).and_then(|data| data.modified()).expect("a time");
    let untouched = time("b.pipe");
    let would = pipec(&folder, "fmt --check .", "").with(1);
    assert_eq!((would.out.as_str(), would.error.as_str()), ("./a.pipe\n./sub/d.pipe\n", ""));
    assert_eq!(read("a.pipe"), LOOSE);
    assert_eq!(pipec(&folder, "fmt .", "").with(0).out, "./a.pipe\n./sub/d.pipe\n");
    assert_eq!((read("a.pipe").as_str(), read("sub/d.pipe").as_str()), (STYLED, STYLED));
    assert_eq!((read("c.txt").as_str(), read(".hidden/d.pipe").as_str()), (LOOSE, LOOSE));
    assert_eq!(time("b.pipe"), untouched);
    assert_eq!(pipec(&folder, "fmt --check . b.pipe", "").with(0).out, "");
    // What is named is formatted, whatever it is called.
    assert_eq!(pipec(&folder, "fmt c.txt", "").with(0).out, "c.txt\n");
    let left: Vec<_> = fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry")).collect();
    assert_eq!(left.len(), 5, "temporary files are left: {left:?}");
}

#[cfg(unix)]
#[test]
fn links_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = folder("fmt-links", &[("real.pipe", LOOSE), ("locked.pipe", LOOSE)]);
    let set = |name: &str, mode| {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).expect("permissions");
    };
    symlink("real.pipe", folder.join("link.pipe")).expect("a link");
    set("real.pipe", 0o640);
    set("locked.pipe", 0o440);
    assert_eq!(pipec(&folder, "fmt link.pipe", "").with(0).out, "link.pipe\n");
    assert!(folder.join("link.pipe").is_symlink());
    let data = fs::metadata(folder.join("real.pipe")).expect("a file");
    assert_eq!((data.permissions().mode() & 0o777, data.len() as usize), (0o640, STYLED.len()));
    let ended = pipec(&folder, "fmt locked.pipe", "").with(2);
    assert!(ended.error.contains("locked.pipe: the file is read-only"), "{}", ended.error);
}

#[test]
fn a_diff_is_what_patch_takes_and_changes_nothing_itself() {
    let long: String = (0..20).map(|line| format!("param p{line} = {line}\n")).collect();
    let loose = long.replace("p9 =", "p9  =").replace("p19 = 19\n", "p19=19");
    let folder = folder("fmt-diff", &[("a.pipe", &loose), ("b.pipe", &long), ("c.pipe", BROKEN)]);
    let read = || fs::read_to_string(folder.join("a.pipe")).expect("a file");
    let ended = pipec(&folder, "fmt --diff a.pipe b.pipe", "").with(1);
    let expected = "\
--- a.pipe
+++ a.pipe
@@ -7,7 +7,7 @@
 param p6 = 6
 param p7 = 7
 param p8 = 8
-param p9  = 9
+param p9 = 9
 param p10 = 10
 param p11 = 11
 param p12 = 12
@@ -17,4 +17,4 @@
 param p16 = 16
 param p17 = 17
 param p18 = 18
-param p19=19
\\ No newline at end of file
+param p19 = 19
";
    assert_eq!((ended.out.as_str(), ended.error.as_str()), (expected, ""));
    assert_eq!(read(), loose);
    assert_eq!(pipec(&folder, "fmt --diff --check a.pipe", "").with(1).out, expected);
    assert_eq!(pipec(&folder, "fmt --diff -", &loose).with(1).out, expected.replace("a.pipe", "<stdin>"));
    assert_eq!(pipec(&folder, "fmt --diff -", &long).with(0).out, "");
    assert_eq!(pipec(&folder, "fmt --diff b.pipe", "").with(0).out, "");
    let ended = pipec(&folder, "fmt --diff c.pipe a.pipe", "").with(1);
    assert!(ended.error.contains("error[syntax]") && ended.out == expected, "{}{}", ended.out, ended.error);
    // What `patch` makes of it is what `fmt` does.
    let patched = Command::new("patch").args(["-p0", "-s"]).current_dir(&folder).stdin(Stdio::piped()).spawn();
    let Ok(mut patch) = patched else { return };
    patch.stdin.take().expect("a pipe").write_all(expected.as_bytes()).expect("patch reads");
    assert!(patch.wait().expect("patch ends").success());
    assert_eq!(read(), long);
}
