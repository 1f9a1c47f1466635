_xebec_names() {
    local -a names
    if [[ $1 == files ]]; then
        shift
        _files
    fi
    names=(${(f)"$(xebec complete "$@" -- "$PREFIX" 2>/dev/null)"})
    compadd -a names
}
