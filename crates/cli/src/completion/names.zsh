_xebec_names() {
    local -a names
    names=(${(f)"$(xebec complete "$@" -- "$PREFIX" 2>/dev/null)"})
    compadd -a names
}
