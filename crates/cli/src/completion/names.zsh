_xebec_names() {
    local -a names directories
    local option word
    # Each root has names of its own. By here, `words` has lost what stands before the command.
    for word in ${(z)LBUFFER}; do
        word=${(Q)word}
        if [[ $word == --root=* || $word == --run=* ]]; then
            option=${word%%=*}
            word=${word#*=}
        fi
        if [[ -n $option ]]; then
            # As the shell will read it.
            directories+=("$option" "${word/#\~\//$HOME/}")
            option=
        elif [[ $word == --root || $word == --run ]]; then
            option=$word
        fi
    done
    if [[ $1 == files ]]; then
        shift
        _files
    fi
    names=(${(f)"$(xebec "${directories[@]}" complete "$@" -- "$PREFIX" 2>/dev/null)"})
    compadd -a names
}
