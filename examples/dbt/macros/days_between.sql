{% macro days_between(first, last) %}({{ last }} - {{ first }}){% endmacro %}
