// Users, roles and API keys live in an index whose analysis needs a module that the distribution for integration tests
// does not have. This plugin has the four parts that are needed, made of the Lucene classes in `lib`.
package shipper.analysis;

import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import org.apache.lucene.analysis.LowerCaseFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.email.UAX29URLEmailTokenizer;
import org.apache.lucene.analysis.miscellaneous.RemoveDuplicatesTokenFilter;
import org.apache.lucene.analysis.pattern.PatternCaptureGroupTokenFilter;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.index.analysis.TokenizerFactory;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.Plugin;

public final class Analysis extends Plugin implements AnalysisPlugin {
    @Override
    public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
        return Map.of(
            "lowercase", (index, environment, name, settings) -> factory(name, LowerCaseFilter::new),
            "unique", (index, environment, name, settings) -> factory(name, RemoveDuplicatesTokenFilter::new),
            "pattern_capture", (index, environment, name, settings) -> {
                boolean keeps = settings.getAsBoolean("preserve_original", true);
                Pattern[] patterns =
                    settings.getAsList("patterns").stream().map(Pattern::compile).toArray(Pattern[]::new);
                return factory(name, stream -> new PatternCaptureGroupTokenFilter(stream, keeps, patterns));
            });
    }

    @Override
    public Map<String, AnalysisProvider<TokenizerFactory>> getTokenizers() {
        return Map.of("uax_url_email", (index, environment, name, settings) ->
            TokenizerFactory.newFactory(name, UAX29URLEmailTokenizer::new));
    }

    private static TokenFilterFactory factory(String name, UnaryOperator<TokenStream> filter) {
        return new TokenFilterFactory() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public TokenStream create(TokenStream stream) {
                return filter.apply(stream);
            }
        };
    }
}
