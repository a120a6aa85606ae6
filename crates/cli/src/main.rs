//! The `isthmus` command.

fn main() -> std::process::ExitCode {
    isthmus_cli::main()
}
