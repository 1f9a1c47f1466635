_xebec_names() {
    local -a names directories
    local option word
    # Each root has names of its own. zsh has removed the options before the command from `words`, and LBUFFER may have other
    # commands before this one.
    for word in ${(z)LBUFFER}; do
        if [[ $word == (';'|'&&'|'||'|'|'|'&') ]]; then
            option= directories=()
            continue
        fi
        word=${(Q)word}
        if [[ $word == --root=* || $word == --run=* ]]; then
            option=${word%%=*}
            word=${word#*=}
        elif [[ -n $option ]]; then
            # Of a word of its own, the shell expands it.
            word=${word/#\~\//$HOME/}
        fi
        if [[ -n $option ]]; then
            directories+=("$option" "$word")
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
